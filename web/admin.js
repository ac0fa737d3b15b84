document.title = `${t('admin.title')} · ${texts['page.name']}`;

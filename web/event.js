document.title = `${t('event.title')} · ${texts['page.name']}`;

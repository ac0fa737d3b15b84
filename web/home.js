document.title = `${t('home.title')} · ${texts['page.name']}`;
